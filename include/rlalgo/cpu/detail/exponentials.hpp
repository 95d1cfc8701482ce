// A body (instruction_set.hpp): e^x and tanh x.
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET {

// e^x by range reduction to |r| ≤ ln2/2 and a degree-6 polynomial (Cephes expf); relative error below 2 ulp. Results
// below the smallest normal number are 0; NaN stays NaN.
RLALGO_CPU_OPERATION Floats exp(Floats x) {
  x = smaller(all(88.3762626647950f), x);
  const Floats n = nearest(x * all(1.44269504088896341f));
  const Floats r = fnma(n, all(-2.12194440e-4f), fnma(n, all(0.693359375f), x));
  Floats p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = fma(p, r * r, r + all(1.0f));
  return scaled_above(x, -87.33654f, p, n);
}

// tanh x as a quotient of polynomials in x² (figures: Eigen 3.4, ptanh_float); relative error below 6 ulp. |x| beyond 7.9 gives ±1.
RLALGO_CPU_OPERATION Floats tanh(Floats x) {
  x = larger(all(-7.90531110763549805f), smaller(all(7.90531110763549805f), x));
  const Floats square = x * x;
  Floats p = all(-2.76076847742355e-16f);
  for (const float next : {2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f, 1.48572235717979e-05f,
                           6.37261928875436e-04f, 4.89352455891786e-03f})
    p = fma(p, square, all(next));
  Floats q = all(1.19825839466702e-06f);
  for (const float next : {1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f})
    q = fma(q, square, all(next));
  return x * p / q;
}

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
