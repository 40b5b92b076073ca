package stats

// Alpha is Krippendorff's alpha of the ratings of several units: 1 if all raters of each unit agree,
// 0 if they agree as often as by chance. distance is the squared distance of two ratings. Units with
// one rating say nothing. It is nil if nothing can be said: fewer than two ratings, or no two that
// differ. (Krippendorff, Content Analysis, chapter 11.)
func Alpha(units [][]float64, distance func(a, b float64) float64) *float64 {
	var all []float64
	observed := 0.0
	for _, unit := range units {
		if len(unit) < 2 {
			continue
		}
		all = append(all, unit...)
		observed += pairs(unit, distance) / float64(len(unit)-1)
	}
	// Equal ratings are counted, because there are few different ones among many.
	counts := map[float64]float64{}
	for _, x := range all {
		counts[x]++
	}
	expected := 0.0
	for a, m := range counts {
		for b, n := range counts {
			expected += m * n * distance(a, b)
		}
	}
	if expected == 0 {
		return nil
	}
	alpha := 1 - observed*float64(len(all)-1)/expected
	return &alpha
}

// pairs sums the distances of all ordered pairs.
func pairs(x []float64, distance func(a, b float64) float64) (sum float64) {
	for i, a := range x {
		for j, b := range x {
			if i != j {
				sum += distance(a, b)
			}
		}
	}
	return sum
}

// Nominal is the distance of ratings that are only equal or not.
func Nominal(a, b float64) float64 {
	if a == b {
		return 0
	}
	return 1
}

// Interval is the distance of ratings whose differences mean something.
func Interval(a, b float64) float64 { return (a - b) * (a - b) }

// Kappa is Cohen's kappa of two raters: their agreement beyond what chance explains. It is nil if
// they have rated nothing, or always the same.
func Kappa(a, b []float64) *float64 {
	if len(a) == 0 || len(a) != len(b) {
		return nil
	}
	n := float64(len(a))
	agreed, ofA, ofB := 0.0, map[float64]float64{}, map[float64]float64{}
	for i := range a {
		if a[i] == b[i] {
			agreed++
		}
		ofA[a[i]]++
		ofB[b[i]]++
	}
	chance := 0.0
	for x, m := range ofA {
		chance += m * ofB[x] / (n * n)
	}
	if chance == 1 {
		return nil
	}
	kappa := (agreed/n - chance) / (1 - chance)
	return &kappa
}
