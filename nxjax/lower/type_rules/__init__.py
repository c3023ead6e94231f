"""What equations of each op look like, said a second time: apart from the ops, so that no rule checks itself."""
