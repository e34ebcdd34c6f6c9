"""Find out who is at fault, at which operator, and by which smallest example. No verdict changes here."""
