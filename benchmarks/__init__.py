"""What a training step costs, against a plain loop, as ratios measured in one run."""
