package stats

import (
	"math"
	"testing"
)

func TestPassAtKIsStable(t *testing.T) {
	curve := Attempts{{10_000, 9_000, "1"}, {100, 50, "2"}}.Curve(5_000) // C(10000,5000) is far beyond a float
	for _, p := range curve {
		if math.IsNaN(*p.PassHatK) || *p.PassHatK < 0 || *p.PassAtK > 1 {
			t.Fatalf("got %+v", p)
		}
	}
	if got, want := *(Attempts{{100, 50, "2"}}.Curve(3)[2].PassHatK), 19600.0/161700; math.Abs(got-want) > 1e-9 {
		t.Errorf("C(50,3)/C(100,3): got %v, want %v", got, want)
	}
}
