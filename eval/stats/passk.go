package stats

// PassK says how likely it is that of k attempts at an evaluation at least one passes (pass@k) and
// that all pass (pass^k), as unbiased estimates averaged over the N evaluations with at least k
// attempts that count.
type PassK struct {
	K                     int      `json:"k"`
	N                     int      `json:"n"`
	PassAtK               *float64 `json:"passAtK"`
	PassAtKStandardError  *float64 `json:"passAtKStandardError"`
	PassHatK              *float64 `json:"passHatK"`
	PassHatKStandardError *float64 `json:"passHatKStandardError"`
}

// Attempts are the attempts at evaluations.
type Attempts []Attempted

// Attempted is one evaluation, of whose N attempts some passed.
type Attempted struct {
	N, Passed int
	Cluster   string
}

// Curve returns pass@k and pass^k for each k up to most: of n attempts of which c passed, the
// shares of the C(n,k) choices of k attempts in which at least one passed, and in which all did.
func (a Attempts) Curve(most int) []PassK {
	out := make([]PassK, most)
	none, all := make([]float64, len(a)), make([]float64, len(a)) // C(n-c,k)/C(n,k) and C(c,k)/C(n,k)
	for i := range a {
		none[i], all[i] = 1, 1
	}
	for k := 1; k <= most; k++ {
		var atLeast, every Sample
		for i, one := range a {
			if one.N < k {
				continue
			}
			left := float64(one.N - k + 1)
			none[i] *= max(0, float64(one.N-one.Passed-k+1)) / left
			all[i] *= max(0, float64(one.Passed-k+1)) / left
			atLeast.Add(one.Cluster, 1-none[i])
			every.Add(one.Cluster, all[i])
		}
		p := PassK{K: k, N: len(atLeast.x)}
		if p.N > 0 {
			at, atError, _ := atLeast.mean()
			hat, hatError, _ := every.mean()
			p.PassAtK, p.PassAtKStandardError, p.PassHatK, p.PassHatKStandardError = &at, atError, &hat, hatError
		}
		out[k-1] = p
	}
	return out
}

// Common returns the evaluations with as many attempts as were planned, nil if all or none of them
// have so many. A curve over all would be over another set of evaluations for each k, and need not
// be monotone.
func (a Attempts) Common(planned int) Attempts {
	var out Attempts
	for _, one := range a {
		if one.N >= planned {
			out = append(out, one)
		}
	}
	if len(out) == len(a) {
		return nil
	}
	return out
}
