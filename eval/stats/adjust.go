package stats

import (
	"cmp"
	"slices"
)

// Holm adjusts p-values for their number (Holm 1979): if all that are at most alpha are called
// differences, the probability that any of them is none is at most alpha.
func Holm(p []float64) []float64 {
	out, least := make([]float64, len(p)), 0.0
	for rank, i := range ascending(p) {
		least = max(least, min(1, p[i]*float64(len(p)-rank)))
		out[i] = least
	}
	return out
}

// BenjaminiHochberg adjusts p-values for their number (Benjamini and Hochberg 1995): if all that
// are at most alpha are called differences, a share of at most alpha of them is expected to be
// none. It finds more than [Holm], and is for many rows in which one looks for candidates.
func BenjaminiHochberg(p []float64) []float64 {
	out, most := make([]float64, len(p)), 1.0
	for rank, i := range slices.Backward(ascending(p)) {
		most = min(most, p[i]*float64(len(p))/float64(rank+1))
		out[i] = most
	}
	return out
}

// ascending returns the indices of p in the order of its values.
func ascending(p []float64) []int {
	order := make([]int, len(p))
	for i := range p {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	return order
}
