"""The networks whose training steps GDP and Mars place, as torch modules. Capturing them into graphs does not belong here."""
