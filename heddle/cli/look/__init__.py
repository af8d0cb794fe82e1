"""What happened, and was the prediction right?"""
