package stats

import (
	"cmp"
	"math"
	"slices"
)

// The interval of the mean of values from 0 to 1 by Gaffke (2005); see also Learned-Miller and Thomas
// (2020). Each value has a weight, and so has one place more; the weights are drawn from a Dirichlet
// distribution. The upper end is the 97.5 % quantile of the weighted mean with a 1 in the place that
// is more, the lower end the 2.5 % quantile with a 0 there. Of values that are 0 or 1 this is the
// interval of Clopper and Pearson. Unlike Student's t it allows for rare values that were not drawn.
//
// Nothing is drawn here. Weights of a Dirichlet distribution are gamma variables over their sum, so
// that a weighted mean is above q if Σ g·(x-q) is above 0. The distribution of that sum is an integral
// along a line through its saddle point, which the trapezoid rule computes to eight digits.

// mostPlaces is how many places are computed one by one; more values share that many.
const mostPlaces = 256

// place is a point with values: shape is the shape of the gamma variable that is its weight, and
// the number of its values if each of them counts whole.
type place struct{ x, shape float64 }

// boundedInterval is the interval of the mean of values, whose weights have shape in sum.
func boundedInterval(values []float64, shape float64) (low, high float64) {
	places := placesOf(values)
	mirrored := make([]place, len(places))
	for i := range places {
		places[i].shape *= shape / float64(len(values))
		mirrored[len(places)-1-i] = place{1 - places[i].x, places[i].shape}
	}
	return 1 - upperEnd(mirrored), upperEnd(places)
}

// placesOf returns the places of values in rising order, with the number of values at each. If
// there are too many, each value is shared by the two points of a grid between which it lies, so
// that the mean stays the same and nothing becomes narrower.
func placesOf(values []float64) (out []place) {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	for _, x := range sorted {
		x = min(max(x, 0), 1)
		if n := len(out); n > 0 && x-out[n-1].x < 1e-12 {
			out[n-1].shape++
		} else {
			out = append(out, place{x, 1})
		}
	}
	if len(out) <= mostPlaces {
		return out
	}
	first := out[0].x
	step := (out[len(out)-1].x - first) / (mostPlaces - 1)
	grid := make([]place, mostPlaces)
	for i := range grid {
		grid[i].x = first + float64(i)*step
	}
	for _, p := range out {
		i := min(int((p.x-first)/step), mostPlaces-2)
		share := min(1, (p.x-grid[i].x)/step)
		grid[i].shape += (1 - share) * p.shape
		grid[i+1].shape += share * p.shape
	}
	return slices.DeleteFunc(grid, func(p place) bool { return p.shape == 0 })
}

// upperEnd is the 97.5 % quantile of the weighted mean of the places and a 1 of shape 1.
func upperEnd(places []place) float64 {
	const tail = (1 - level) / 2
	low, high := places[0].x, 1.0
	if low >= 1 {
		return 1
	}
	w := weightedMean{places: append(slices.Clone(places), place{1, 1})}
	w.rates = make([]place, len(w.places)+1)
	// The probability falls from 1 to 0, and its logarithm is nearly a parabola: the method of false
	// position (Illinois) takes some ten steps.
	atLow, atHigh, q := -math.Log(tail), -700.0, w.guess()
	for last := 0.0; high-low > 1e-9; {
		if q <= low || q >= high {
			q = (low + high) / 2
		}
		at := math.Log(max(w.above(q), 1e-300) / tail)
		if math.Abs(at) < 1e-7 {
			return q
		}
		same := at*last > 0
		if at > 0 {
			low, atLow = q, at
			if same {
				atHigh /= 2
			}
		} else {
			high, atHigh = q, at
			if same {
				atLow /= 2
			}
		}
		last = at
		q = (low*atHigh - high*atLow) / (atHigh - atLow)
	}
	return (low + high) / 2
}

// weightedMean is a mean of places with random weights.
type weightedMean struct {
	places []place
	rates  []place // room for integrand
	saddle float64 // the saddle point of the last q, relative to the range of the line
}

// guess returns the mean and two standard deviations of the weighted mean.
func (w *weightedMean) guess() float64 {
	var shape, mean, variance float64
	for _, p := range w.places {
		shape, mean = shape+p.shape, mean+p.shape*p.x
	}
	mean /= shape
	for _, p := range w.places {
		variance += p.shape / shape * (p.x - mean) * (p.x - mean)
	}
	return mean + 2*math.Sqrt(variance/(shape+1))
}

// above returns the probability that the weighted mean is above q, where q lies between the places.
// It is 1/2πi ∫ exp(K(s))/s ds along a line parallel to the imaginary axis with a positive real
// part, where K(s) = -Σ shape·log(1-s·(x-q)) is the cumulant generating function of Σ g·(x-q).
func (w *weightedMean) above(q float64) float64 {
	s := w.saddlePoint(q)
	// At s+iy the integrand is that at s times Π (1-iy·rate)^-shape over the rates below, of which 1/s
	// is one more.
	height, width := -math.Log(s), 1/(s*s)
	for i, p := range w.places {
		rate := (p.x - q) / (1 - s*(p.x-q))
		w.rates[i] = place{rate, p.shape}
		height -= p.shape * math.Log1p(-s*(p.x-q))
		width += p.shape * rate * rate
	}
	w.rates[len(w.places)] = place{-1 / s, 1}
	// y = width·sinh(u) makes of any decay one by which the trapezoid rule converges exponentially.
	width = 1 / math.Sqrt(width)
	sum := w.trapezoid(0, 0.4, height, width)
	for step := 0.4; step > 0.005; step /= 2 {
		finer := (sum + w.trapezoid(step/2, step, height, width)) / 2
		if math.Abs(finer-sum) < 1e-8 {
			return finer
		}
		sum = finer
	}
	return sum
}

// trapezoid sums the integrand from a point on, in steps, where it is not negligible.
func (w *weightedMean) trapezoid(from, step, height, width float64) (sum float64) {
	for u := from; ; u += step {
		y := width * math.Sinh(u)
		size, angle := 0.0, 0.0
		for _, r := range w.rates {
			size += r.shape * math.Log1p(r.x*r.x*y*y)
			angle += r.shape * math.Atan(r.x*y)
		}
		f := math.Exp(height-size/2) * width * math.Cosh(u) * step / math.Pi
		if u == 0 {
			f /= 2
		}
		sum += f * math.Cos(angle)
		if f < 1e-12 && u > 1 {
			return sum
		}
	}
}

// saddlePoint returns the s between 0 and 1/(1-q) for which exp(K(s))/s is least, by Newton's
// method. It need not be exact: the integral is the same along any line.
func (w *weightedMean) saddlePoint(q float64) float64 {
	low, high := 0.0, 1/(1-q)
	s := high * cmp.Or(w.saddle, 0.5)
	for range 100 {
		slope, curve := -1/s, 1/(s*s)
		for _, p := range w.places {
			rate := (p.x - q) / (1 - s*(p.x-q))
			slope += p.shape * rate
			curve += p.shape * rate * rate
		}
		if slope*slope < 1e-4*curve {
			break
		}
		if slope > 0 {
			high = s
		} else {
			low = s
		}
		if s -= slope / curve; s <= low || s >= high {
			s = (low + high) / 2
		}
	}
	w.saddle = s * (1 - q)
	return s
}
