"""Program -> IpuProgram: variables on tiles, vertices in compute sets, exchange between them."""
