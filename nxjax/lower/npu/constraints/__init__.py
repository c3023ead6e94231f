"""What each chip takes, as its vendor publishes it: tables of rules, one file per vendor, in our own words."""
