package container

import (
	"bytes"
	"testing"
)

// A program in a container may print without end: what is remembered for a message is bounded.
func TestABeginningIsBounded(t *testing.T) {
	var b beginning
	for range 100 {
		if n, err := b.Write(bytes.Repeat([]byte("x"), 999)); n != 999 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := len(b.String()); n != 4000 {
		t.Errorf("%d bytes", n)
	}
}
