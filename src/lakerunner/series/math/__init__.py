"""Mathematical functions whose last bits do not depend on the machine's math library."""
