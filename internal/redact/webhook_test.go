package redact

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Whatever a redactor knows, and wherever a stream is cut: a webhook's token does not pass.
func TestWebhooksAreReplaced(t *testing.T) {
	token := WebhookPrefix + strings.Repeat("aB-_", webhookLength/4)
	for text, want := range map[string]string{
		"POST http://h:1/v1/hooks/" + token + "/fail": "POST http://h:1/v1/hooks/" + webhookMarker + "/fail",
		token:                     webhookMarker,
		token[:30] + ": cut off":  webhookMarker + ": cut off",
		token + "more":            webhookMarker + "more",
		token + token:             webhookMarker + webhookMarker,
		"evalrun_hoo":             "evalrun_hoo",
		"evalrun_evalrun_hook_x":  "evalrun_" + webhookMarker,
		"no token in-here-at-all": "no token in-here-at-all",
		`{"url":"` + token + `"}`: `{"url":"` + webhookMarker + `"}`,
	} {
		for name, r := range map[string]*Redactor{"nil": nil, "others": New(map[string]string{"KEY": "some-secret"})} {
			if got := r.String(text); got != want {
				t.Errorf("%s: %q became %q", name, text, got)
			}
			if got := string(r.Bytes([]byte(text))); got != want {
				t.Errorf("%s: %q became %q", name, text, got)
			}
			in, _ := json.Marshal(text)
			out, _ := json.Marshal(want)
			if got := r.JSON(in); !bytes.Equal(got, out) {
				t.Errorf("%s: %s became %s", name, in, got)
			}
			for size := 1; size <= len(text)+1; size++ {
				var got bytes.Buffer
				w := r.Writer(&got)
				for rest := text; rest != ""; {
					n := min(size, len(rest))
					if _, err := w.Write([]byte(rest[:n])); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				if err := w.Close(); err != nil || got.String() != want {
					t.Fatalf("%s, pieces of %d: %q became %q, %v", name, size, text, got.String(), err)
				}
			}
		}
	}
}
