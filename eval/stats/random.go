package stats

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
