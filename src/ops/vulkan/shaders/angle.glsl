// Sine and cosine of angles of any size: Vulkan promises little accuracy beyond +-pi, and positions
// reach a million. An angle is a float exactly; its quarter turns are counted in integers.
vec2 CosSin(float angle) {
  const uint bits = floatBitsToUint(angle);
  int turns = 0;
  float rest = angle;
  if (angle >= 0.5) {
    // 2 / pi = 0.A2F9836E4E441529..., in words of 32 bits.
    const uint64_t mantissa = uint64_t((bits & 0x7fffffu) | 0x800000u);
    const uint64_t quarters =
        mantissa * 0xa2f9836eul + ((mantissa * 0x4e441529ul) >> 32);  // * 2^-shift
    const int shift = 32 + 150 - int(bits >> 23);                      // 34 to 56
    const uint64_t whole = (quarters + (1ul << (shift - 1))) >> shift;
    turns = int(whole & 3ul);
    const int64_t part = int64_t(quarters) - int64_t(whole << shift);
    rest = ldexp(float(part), -shift) * 1.57079632679489662;
  }
  const float z = rest * rest;
  const float s =
      rest + rest * z *
                 (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4));
  const float c =
      1.0 - 0.5 * z +
      z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
  switch (turns) {
    case 0:
      return vec2(c, s);
    case 1:
      return vec2(-s, c);
    case 2:
      return vec2(-c, -s);
    default:
      return vec2(s, -c);
  }
}
