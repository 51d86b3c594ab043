set(BRAID_KIND quick)
