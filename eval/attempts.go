package eval

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

// attempts are the attempts at each evaluation: n of them, of which some passed.
type attempts []attempted

type attempted struct {
	n, passed int
	cluster   string
}

func (a *attempts) add(cluster string, scores []float64, pass float64) {
	if len(scores) == 0 {
		return
	}
	one := attempted{n: len(scores), cluster: cluster}
	for _, score := range scores {
		if passes(score, pass) {
			one.passed++
		}
	}
	*a = append(*a, one)
}

// curve is pass@k and pass^k for each k up to most: of n attempts of which c passed, the shares of
// the C(n,k) choices of k attempts in which at least one passed, and in which all did.
func (a attempts) curve(most int) []PassK {
	out := make([]PassK, most)
	none, all := make([]float64, len(a)), make([]float64, len(a)) // C(n-c,k)/C(n,k) and C(c,k)/C(n,k)
	for i := range a {
		none[i], all[i] = 1, 1
	}
	for k := 1; k <= most; k++ {
		var atLeast, every values
		for i, one := range a {
			if one.n < k {
				continue
			}
			left := float64(one.n - k + 1)
			none[i] *= max(0, float64(one.n-one.passed-k+1)) / left
			all[i] *= max(0, float64(one.passed-k+1)) / left
			atLeast.add(one.cluster, 1-none[i])
			every.add(one.cluster, all[i])
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

// common are the evaluations with as many attempts as were planned, nil if all or none of them have
// so many. A curve over all would be over another set of evaluations for each k, and need not be
// monotone.
func (a attempts) common(planned int) attempts {
	var out attempts
	for _, one := range a {
		if one.n >= planned {
			out = append(out, one)
		}
	}
	if len(out) == len(a) {
		return nil
	}
	return out
}
