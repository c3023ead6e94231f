"""Filters, colours, geometry, morphology, small networks of images."""

from benchmarks.breadth.program import program


@program("h w: unit", rows=("h=256 w=256", "h=32 w=32 float64"))
def gaussian_blur(lib, x):
    k = lib.numpy.asarray([1.0, 4.0, 6.0, 4.0, 1.0], dtype=x.dtype) / 16
    x = sum(k[i] * lib.numpy.roll(x, i - 2, 0) for i in range(5))
    return sum(k[i] * lib.numpy.roll(x, i - 2, 1) for i in range(5))


@program("h w: unit", rows=("h=256 w=256", "h=32 w=32 float64"))
def sobel_magnitude(lib, x):
    rows = x[:-2] + 2 * x[1:-1] + x[2:]
    columns = x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]
    gx, gy = rows[:, 2:] - rows[:, :-2], columns[2:] - columns[:-2]
    return lib.numpy.sqrt(gx * gx + gy * gy)


@program("h w 3: unit", rows=("h=256 w=256", "h=16 w=16 float64", "h=128 w=128 bfloat16"))
def grey_and_normalize(lib, x):
    grey = x @ lib.numpy.asarray([0.299, 0.587, 0.114], dtype=x.dtype)
    return (grey - grey.mean()) / (grey.std() + 1e-3)


@program("h w 3: unit", rows=("h=128 w=128", "h=16 w=16 float64"))
def rgb_to_hsv(lib, x):
    np = lib.numpy
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    most, least = x.max(axis=-1), x.min(axis=-1)
    span = most - least + 1e-6
    hue = np.where(most == r, (g - b) / span % 6, np.where(most == g, (b - r) / span + 2, (r - g) / span + 4))
    return np.stack([hue / 6, span / (most + 1e-6), most], axis=-1)


@program("h w: unit", rows=("h=128 w=128", "h=24 w=24 float64"))
def bilinear_warp(lib, x):
    np = lib.numpy
    i, j = np.meshgrid(np.arange(x.shape[0]), np.arange(x.shape[1]), indexing="ij")
    at = np.stack([0.9 * i + 0.1 * j, 0.9 * j - 0.1 * i + 2.0])
    return lib.scipy.ndimage.map_coordinates(x, at, order=1, mode="nearest")


@program("b h w c: unit", rows=("b=4 h=64 w=64 c=3", "b=1 h=12 w=12 c=1"))
def resize_bilinear(lib, x):
    b, h, w, c = x.shape
    return lib.image.resize(x, (b, 2 * h, 2 * w, c), "bilinear")


@program("b h w c", "3 3 c d: small", rows=("b=4 h=32 w=32 c=16 d=32", "b=1 h=12 w=12 c=4 d=4"))
def convolution_layer(lib, x, w):
    y = lib.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lib.nn.relu(y)


@program("b h w c", "3 3 c c: small", rows=("b=2 h=24 w=24 c=8", "b=1 h=12 w=12 c=4"), tolerance=10)
def convolution_gradient(lib, x, w):
    def loss(w):
        y = lib.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (lib.numpy.tanh(y) ** 2).mean()

    return lib.grad(loss)(w)


@program("b h w c", rows=("b=8 h=64 w=64 c=16", "b=1 h=12 w=12 c=4", "b=4 h=32 w=32 c=16 bfloat16"))
def max_pool(lib, x):
    return lib.lax.reduce_window(x, -lib.numpy.inf, lib.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@program("b h w c", rows=("b=8 h=48 w=48 c=16", "b=2 h=12 w=12 c=4 float64"))
def average_pool_by_reshape(lib, x):
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).mean(axis=(2, 4))


@program("h w: unit", rows=("h=256 w=256", "h=24 w=24 float64"))
def histogram_equalization(lib, x):
    np = lib.numpy
    bins = np.clip((x * 64).astype(np.int32), 0, 63)
    cdf = np.cumsum(np.bincount(bins.ravel(), length=64)) / x.size
    return cdf[bins]


@program("h w: unit", rows=("h=192 w=192", "h=24 w=24 float64"))
def dilation(lib, x):
    np = lib.numpy
    padded = np.pad(x, 1, mode="edge")
    shifts = [padded[i : i + x.shape[0], j : j + x.shape[1]] for i in range(3) for j in range(3)]
    most = shifts[0]
    for shifted in shifts[1:]:
        most = np.maximum(most, shifted)
    return most


@program("h w: unit", rows=("h=128 w=128", "h=16 w=16 float64"))
def integral_image_box(lib, x):
    total = lib.numpy.cumsum(lib.numpy.cumsum(x, axis=0), axis=1)
    return (total[8:, 8:] - total[:-8, 8:] - total[8:, :-8] + total[:-8, :-8]) / 64


@program("b h w 3: unit", ": below 99", rows=("b=8 h=48 w=48", "b=2 h=12 w=12"))
def augment(lib, x, seed):
    key = lib.random.key(seed)
    flip = lib.random.bernoulli(key, 0.5, (x.shape[0],))
    x = lib.numpy.where(flip[:, None, None, None], x[:, :, ::-1], x)
    return lib.numpy.clip(x * 1.2 - 0.1, 0, 1)


@program("h w c", rows=("h=96 w=96 c=3", "h=12 w=12 c=1 float64"))
def patches(lib, x):
    h, w, c = x.shape
    return x.reshape(h // 6, 6, w // 6, 6, c).transpose(0, 2, 1, 3, 4).reshape(-1, 36 * c)


@program("h w: unit", rows=("h=96 w=96", "h=16 w=16 float64"))
def total_variation_denoise(lib, y):
    np = lib.numpy

    def loss(x):
        tv = np.sqrt((x[1:] - x[:-1]) ** 2 + 1e-3).sum() + np.sqrt((x[:, 1:] - x[:, :-1]) ** 2 + 1e-3).sum()
        return ((x - y) ** 2).sum() / 2 + 0.1 * tv

    return lib.lax.fori_loop(0, 10, lambda i, x: x - 0.1 * lib.grad(loss)(x), y)


@program("h w", rows=("h=256 w=256", "h=16 w=16 float64"))
def low_pass_by_fft(lib, x):
    np = lib.numpy
    hat = np.fft.rfft2(x)
    mask = np.abs(np.fft.fftfreq(x.shape[0]))[:, None] < 0.2
    return np.fft.irfft2(hat * mask, x.shape)


@program("h w: unit", "h w: unit", rows=("h=256 w=256", "h=12 w=12 float64"), tolerance=100)
def structural_similarity(lib, x, y):
    mean = lambda v: lib.lax.reduce_window(v, v.dtype.type(0), lib.lax.add, (8, 8), (1, 1), "VALID") / 64
    mx, my = mean(x), mean(y)
    vx, vy, both = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    return ((2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))).mean()


@program("h w: unit", rows=("h=512 w=512", "h=12 w=12 float64"))
def morphological_opening(lib, x):
    inf = x.dtype.type(float("inf"))
    least = lib.lax.reduce_window(x, inf, lib.lax.min, (5, 5), (1, 1), "SAME")
    return lib.lax.reduce_window(least, -inf, lib.lax.max, (5, 5), (1, 1), "SAME")


@program("b h w 3: below 255", rows=("b=8 h=224 w=224", "b=1 h=12 w=12"))
def bytes_to_planes(lib, x):
    np = lib.numpy
    mean, deviation = np.asarray([0.48, 0.45, 0.4]), np.asarray([0.2, 0.2, 0.2])
    return ((x.astype(np.uint8).astype(np.float32) / 255 - mean) / deviation).transpose(0, 3, 1, 2)


@program("b h w 3: unit", rows=("b=8 h=224 w=224", "b=1 h=12 w=12 float64"))
def brightest_channel(lib, x):
    return x.max(axis=-1), x.argmax(axis=-1), x[..., ::-1]


@program("h w: bytes", rows=("h=480 w=640", "h=12 w=12"))
def colours_behind_a_mosaic(lib, x):
    np = lib.numpy
    green = (x[::2, 1::2].astype(np.uint16) + x[1::2, ::2]) // 2
    return np.stack([x[::2, ::2], green.astype(np.uint8), x[1::2, 1::2]], axis=-1)


@program("b h w 3: bytes", rows=("b=8 h=128 w=128", "b=1 h=12 w=12"))
def beside_its_mirror_image(lib, x):
    return lib.numpy.concatenate([x, x[:, :, ::-1]], axis=2)


@program("b h w 32", "3 3 8 32: small", rows=("b=2 h=32 w=32", "b=1 h=12 w=12"))
def convolution_of_groups(lib, x, w):
    shape = ("NHWC", "HWIO", "NHWC")
    return lib.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=shape, feature_group_count=4)
