"""Apple's Neural Engine through Core ML."""
