# Known hardware is data in the library: forecast/hardware.cc has the table.
include(embed)
braid_embed(braid_forecast hardware/h100.json kHardwareH100)
braid_embed(braid_forecast hardware/h200.json kHardwareH200)
braid_embed(braid_forecast hardware/b200.json kHardwareB200)
braid_embed(braid_forecast hardware/tpu_v7x.json kHardwareTpuV7x)
braid_embed(braid_forecast hardware/epyc_2core.json kHardwareEpyc2Core)
