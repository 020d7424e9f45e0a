"""What SGLang itself loads of the lab."""
