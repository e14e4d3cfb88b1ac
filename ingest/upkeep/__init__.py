"""What keeps tables small: old files, forgotten tombstones."""
