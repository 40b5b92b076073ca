package stats

import "math"

// studentQuantile is the 0.975 quantile of Student's t with df degrees of freedom, by bisection.
func studentQuantile(df float64) float64 {
	low, high := 0.0, 20.0
	for studentCDF(high, df) < 0.975 {
		low, high = high, 2*high
	}
	for range 200 {
		middle := (low + high) / 2
		if middle == low || middle == high {
			break
		}
		if studentCDF(middle, df) < 0.975 {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// studentCDF is the distribution function of Student's t for t >= 0.
func studentCDF(t, df float64) float64 {
	return 1 - incompleteBeta(df/2, 0.5, df/(df+t*t))/2
}

// studentP is the two-sided p-value of t.
func studentP(t, df float64) float64 { return incompleteBeta(df/2, 0.5, df/(df+t*t)) }

// incompleteBeta is the regularised incomplete beta function I_x(a, b).
func incompleteBeta(a, b, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	if x > (a+1)/(a+b+2) { // the continued fraction converges faster on the other side
		return 1 - incompleteBeta(b, a, 1-x)
	}
	logAB, _ := math.Lgamma(a + b)
	logA, _ := math.Lgamma(a)
	logB, _ := math.Lgamma(b)
	front := math.Exp(logAB - logA - logB + a*math.Log(x) + b*math.Log1p(-x))
	return front * betaFraction(a, b, x) / a
}

// betaFraction is the continued fraction of the incomplete beta function by Lentz's method.
func betaFraction(a, b, x float64) float64 {
	const tiny, enough = 1e-300, 1e-15
	away := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	fraction := d
	for m := 1.0; m < 10_000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / away(1+even*d)
		c = away(1 + even/c)
		fraction *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / away(1+odd*d)
		c = away(1 + odd/c)
		fraction *= d * c
		if math.Abs(d*c-1) < enough {
			break
		}
	}
	return fraction
}
