package mock

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// redacted matches the marks of secrets that were taken out of a recording.
var redacted = regexp.MustCompile(`\[redacted:[^\]]*\]`)

// sameAs reports whether the arguments of a call are those of a recording. A mark of a secret stands for
// any text.
func sameAs(recorded, got json.RawMessage) bool {
	want := jsonobj.Canonical(recorded)
	places := redacted.FindAllStringIndex(want, -1)
	if places == nil {
		return want == jsonobj.Canonical(got)
	}
	var pattern strings.Builder
	pattern.WriteString("^")
	at := 0
	for _, place := range places {
		pattern.WriteString(regexp.QuoteMeta(want[at:place[0]]) + `(?:[^"\\]|\\.)*`)
		at = place[1]
	}
	pattern.WriteString(regexp.QuoteMeta(want[at:]) + "$")
	matches, err := regexp.MatchString(pattern.String(), jsonobj.Canonical(got))
	return err == nil && matches
}
