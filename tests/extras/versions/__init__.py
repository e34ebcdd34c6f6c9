"""The suite under several releases of torch, and bundles under several versions of a runtime."""
