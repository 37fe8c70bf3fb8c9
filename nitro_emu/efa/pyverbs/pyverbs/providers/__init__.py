"""What depends on the vendor of the device."""
