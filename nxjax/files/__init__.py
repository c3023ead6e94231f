"""Files: those of users, written whole and read without trust (`safe_io`); what is kept for later (`user_cache`)."""
