"""What a lab does: captures, link rates, which spine a source port takes."""
