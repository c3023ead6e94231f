"""AMD's AI Engine array: the target, the model of the array that runs parsed designs, and the vendor's compiler."""
