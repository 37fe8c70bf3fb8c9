"""make quick: what changed against the main branch, checked in half a minute, without root and without a build."""
