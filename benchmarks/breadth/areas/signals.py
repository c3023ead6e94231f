"""Filters, spectra, envelopes, resampling."""

from benchmarks.breadth.program import program


@program("n", "k: small", rows=("n=20000 k=64", "n=500 k=16 float64"))
def fir_filter(lib, x, taps):
    return lib.numpy.convolve(x, taps, mode="same")


@program("n", rows=("n=20000", "n=200 float64"))
def first_order_filter(lib, x):
    def step(y, v):
        y = 0.9 * y + 0.1 * v
        return y, y

    return lib.lax.scan(step, lib.numpy.zeros((), x.dtype), x)[1]


@program("n c", rows=("n=4000 c=16", "n=200 c=2 float64"))
def biquad_cascade(lib, x):
    def step(state, v):
        out = []
        for z1, z2 in state:
            y = 0.2 * v + z1
            out.append((0.4 * v + 0.3 * y + z2, 0.2 * v - 0.4 * y))
            v = y
        return tuple(out), v

    zero = lib.numpy.zeros(x.shape[1], x.dtype)
    return lib.lax.scan(step, ((zero, zero), (zero, zero)), x)[1]


@program("n", rows=("n=65536", "n=1000 float64"))
def power_spectrum(lib, x):
    window = lib.numpy.hanning(x.shape[0]).astype(x.dtype)
    return lib.numpy.abs(lib.numpy.fft.rfft(x * window)) ** 2


@program("f n", rows=("f=200 n=512", "f=16 n=128 float64"))
def log_spectrogram(lib, frames):
    spectrum = lib.numpy.fft.rfft(frames * lib.numpy.hanning(frames.shape[1]).astype(frames.dtype), axis=-1)
    return lib.numpy.log(lib.numpy.abs(spectrum) ** 2 + 1e-6)


@program("n", "n", rows=("n=4096", "n=300 float64"))
def fft_convolution(lib, x, h):
    size = 2 * x.shape[0]
    f = lib.numpy.fft
    return f.irfft(f.rfft(x, size) * f.rfft(h, size), size)[: x.shape[0]]


@program("n", "n", rows=("n=10000", "n=200 float64"))
def scipy_fftconvolve(lib, x, h):
    return lib.scipy.signal.fftconvolve(x, h, mode="same")


@program("n", rows=("n=16384", "n=512 float64"))
def hilbert_envelope(lib, x):
    n = x.shape[0]
    spectrum = lib.numpy.fft.fft(x)
    gain = lib.numpy.where(lib.numpy.arange(n) < n // 2, 2.0, 0.0)
    return lib.numpy.abs(lib.numpy.fft.ifft(spectrum * gain))


@program("n", rows=("n=100000", "n=1000 float64"))
def moving_average(lib, x):
    total = lib.numpy.cumsum(x)
    return (total[100:] - total[:-100]) / 100 if x.shape[0] > 100 else total


@program("m: sorted", "n: sorted", "n", rows=("m=50000 n=1000", "m=500 n=50 float64"))
def interpolate(lib, at, x, y):
    return lib.numpy.interp(at, x, y)


@program("n", rows=("n=60000", "n=600 float64"))
def decimate(lib, x):
    return x.reshape(-1, 6).mean(axis=1)[::2]


@program("n", rows=("n=8192", "n=256 float64"))
def autocorrelation(lib, x):
    c = x - x.mean()
    power = lib.numpy.abs(lib.numpy.fft.fft(c, 2 * x.shape[0])) ** 2
    return lib.numpy.real(lib.numpy.fft.ifft(power))[: x.shape[0]] / x.shape[0]


@program("n", rows=("n=50000", "n=500 float64"))
def zero_crossings(lib, x):
    signs = lib.numpy.sign(x)
    return (signs[1:] != signs[:-1]).sum()


@program("n", rows=("n=30000", "n=500 float64"))
def median_filter(lib, x):
    np = lib.numpy
    windows = np.stack([np.roll(x, i) for i in range(-2, 3)])
    return np.median(windows, axis=0)


@program("n: normal complex", rows=("n=100000", "n=1000 float64"))
def phase_demodulation(lib, z):
    turn = z[1:] * lib.numpy.conj(z[:-1])
    return lib.numpy.angle(turn)


@program("n", "k: small", rows=("n=5000 k=16", "n=200 k=4 float64"))
def lms_filter(lib, x, w):
    k = w.shape[0]

    def step(w, i):
        u = lib.lax.dynamic_slice(x, (i,), (k,))
        error = x[i + k - 1] - u @ w
        return w + 0.01 * error * u, error

    return lib.lax.scan(step, w, lib.numpy.arange(x.shape[0] - k))


@program("c n", rows=("c=16 n=4096", "c=2 n=256 float64"))
def haar_wavelet(lib, x):
    details = []
    for _ in range(2):
        even, odd = x[:, ::2], x[:, 1::2]
        details.append((even - odd) / 2)
        x = (even + odd) / 2
    return lib.numpy.concatenate([x, *details[::-1]], axis=1)


@program("n 257: unit", "257 26: unit", "26 13", rows=("n=300", "n=12 float64"), tolerance=10)
def mel_cepstrum(lib, power, filters, cosines):
    return lib.numpy.log(lib.numpy.maximum(power @ filters, 1e-8)) @ cosines
