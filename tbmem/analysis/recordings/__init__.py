"""What one recording says, device by device, and two compared."""
