package stats

import (
	"math"
	"runtime"
	"slices"
	"sort"
	"sync"
)

// The sign flip test is exact up to exactSigns clusters that differ, and else drawn.
const (
	exactSigns    = 20
	signFlipDraws = 100_000
)

// signFlip returns the probability of a sum as far from 0 as that of the clusters if the sign of
// each were as likely as not.
func signFlip(sums []float64, seed random, draws int) float64 {
	var sizes []float64
	var observed, total float64
	for _, sum := range sums {
		observed += sum
		if size := math.Abs(sum); size > 1e-12 {
			sizes, total = append(sizes, size), total+size
		}
	}
	if len(sizes) == 0 {
		return 1
	}
	enough := math.Abs(observed) - 1e-10*total // sums that are equal but for their rounding count
	if len(sizes) <= exactSigns {
		return exactSignFlip(sizes, enough)
	}
	hits := 0
	for _, sum := range drawSigns(sizes, seed, draws) {
		if math.Abs(sum) >= enough {
			hits++
		}
	}
	return float64(hits+1) / float64(draws+1)
}

// exactSignFlip goes through all signs: every sum is one of the first half and one of the second.
func exactSignFlip(sizes []float64, enough float64) float64 {
	if enough <= 0 {
		return 1
	}
	first, second := signedSums(sizes[:len(sizes)/2]), signedSums(sizes[len(sizes)/2:])
	slices.Sort(second)
	hits := 0
	for _, a := range first {
		hits += len(second) - sort.SearchFloat64s(second, enough-a)                         // a + b >= enough
		hits += sort.Search(len(second), func(i int) bool { return second[i] > -enough-a }) // a + b <= -enough
	}
	return float64(hits) / float64(len(first)*len(second))
}

// signedSums returns the sums for all 2^n choices of signs, where bit i of the index is the sign of
// size i.
func signedSums(sizes []float64) []float64 {
	out := make([]float64, 1, 1<<len(sizes))
	for _, size := range sizes {
		n := len(out)
		for i := range n {
			out = append(out, out[i]+size)
			out[i] -= size
		}
	}
	return out
}

// drawSigns returns sums with random signs. Eight signs at a time are looked up in a table of their
// 256 sums; word w of draw d is random number w*draws+d.
func drawSigns(sizes []float64, seed random, draws int) []float64 {
	out := make([]float64, draws)
	words := (len(sizes) + 63) / 64
	parallel(draws, func(from, to int) {
		for w := range words {
			part := sizes[w*64 : min(len(sizes), w*64+64)]
			var tables [][]float64
			for i := 0; i < len(part); i += 8 {
				tables = append(tables, signedSums(part[i:min(len(part), i+8)]))
			}
			mask := uint64(len(tables[len(tables)-1]) - 1) //nolint:gosec // a positive number
			last := len(tables) - 1
			for d := from; d < to; d++ {
				x := seed.at(uint64(w*draws + d)) //nolint:gosec // a positive number
				sum := 0.0
				for _, table := range tables[:last] {
					sum += table[x&255]
					x >>= 8
				}
				out[d] += sum + tables[last][x&mask]
			}
		}
	})
	return out
}

// Bootstrap is the percentile interval of the mean difference over resampled clusters.
type Bootstrap struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	B    int     `json:"b"`
	Seed uint64  `json:"seed"`
}

// bootstrap resamples clusters, which have sums and sizes. Draw j of resample b is random number
// b*C+j.
func bootstrap(sums []float64, sizes []int, resamples int, seed random) *Bootstrap {
	c := len(sums)
	single := !slices.ContainsFunc(sizes, func(size int) bool { return size != 1 })
	if single && !slices.ContainsFunc(sums, func(sum float64) bool { return sum != sums[0] }) {
		return &Bootstrap{Low: sums[0], High: sums[0], B: resamples, Seed: uint64(seed)} // every sample is the same
	}
	means := make([]float64, resamples)
	parallel(resamples, func(from, to int) {
		for b := from; b < to; b++ {
			first := uint64(b * c) //nolint:gosec // a positive number
			if single {
				means[b] = resampled(sums, seed.after(first)) / float64(c)
				continue
			}
			sum, n := 0.0, 0
			for j := range uint64(c) { //nolint:gosec // a positive number
				i := below(seed.at(first+j), c)
				sum, n = sum+sums[i], n+sizes[i]
			}
			means[b] = sum / float64(n)
		}
	})
	slices.Sort(means)
	return &Bootstrap{Low: quantile(means, 0.025), High: quantile(means, 0.975), B: resamples, Seed: uint64(seed)}
}

// resampled returns the sum of as many draws as there are sums. It adds up two sums side by side,
// because each addition waits for the one before it.
func resampled(sums []float64, state random) float64 {
	var x, y float64
	for range len(sums) / 2 {
		state += golden
		x += sums[below(state.mixed(), len(sums))]
		state += golden
		y += sums[below(state.mixed(), len(sums))]
	}
	if len(sums)%2 == 1 {
		x += sums[below((state+golden).mixed(), len(sums))]
	}
	return x + y
}

// quantile returns a quantile of type 7 (Hyndman and Fan 1996) of sorted values.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// parallel calls f with parts of 0…n, one for each processor.
func parallel(n int, f func(from, to int)) {
	workers := min(runtime.GOMAXPROCS(0), 1+n/64)
	var done sync.WaitGroup
	for w := range workers {
		done.Go(func() { f(n*w/workers, n*(w+1)/workers) })
	}
	done.Wait()
}

// random is SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every platform. Its n-th
// number does not need those before it, so that work is shared between goroutines and still gives
// one result.
type random uint64

const golden = 0x9e3779b97f4a7c15

// at returns the n-th number, counted from 0.
func (seed random) at(n uint64) uint64 { return seed.after(n + 1).mixed() }

// after returns the state after n numbers. The next state is golden more, and its number is mixed
// of it.
func (seed random) after(n uint64) random { return seed + random(n*golden) }

func (seed random) mixed() uint64 {
	x := uint64(seed)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below turns a random number into one that is less than count.
func below(x uint64, count int) int {
	return int((x >> 32) * uint64(count) >> 32) //nolint:gosec // less than count
}
