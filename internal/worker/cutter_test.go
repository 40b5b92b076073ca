package worker

import (
	"bytes"
	"strings"
	"testing"
)

// However a stream is cut into writes, each job gets what was printed for it.
func TestStderrIsCutByJob(t *testing.T) {
	mark := func(text string) string { return "\n\x1enonce " + text + "\n" }
	stream := "start" + mark("begin 1") + "one\n\x1enon\n" + mark("end 1") + "between" + mark("begin 2") + "two\n" + mark("end 2")
	for size := 1; size <= len(stream); size++ {
		c := newCutter("nonce")
		var first, second bytes.Buffer
		c.to(&first)
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			if _, err := c.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
			if c.ended == "1" && c.sink == &first {
				c.to(nil)
			}
			if c.begun == "2" && c.sink == nil {
				c.to(&second)
			}
		}
		c.flush()
		got := first.String() + "|" + second.String()
		if whole := strings.ReplaceAll(got, "|", ""); whole != "startone\n\x1enon\nbetweentwo\n" {
			t.Errorf("writes of %d bytes: got %q", size, got)
		}
		if size == 1 && got != "startone\n\x1enon\n|betweentwo\n" {
			t.Errorf("got %q", got)
		}
	}
}

func TestOnlyTheEndOfWhatComesBetweenJobsIsKept(t *testing.T) {
	c := newCutter("nonce")
	_, _ = c.Write(bytes.Repeat([]byte("x"), maxBetween+100))
	_, _ = c.Write([]byte("end"))
	var job bytes.Buffer
	c.to(&job)
	if job.Len() != maxBetween || !strings.HasSuffix(job.String(), "xend") {
		t.Errorf("got %d bytes", job.Len())
	}
}
