"""What models of other formats share: values of a graph being walked, and the function made of it."""
