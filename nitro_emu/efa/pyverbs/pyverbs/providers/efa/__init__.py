"""Amazon's Elastic Fabric Adapter."""
