package acpagent

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// maxTold is how much of a result is told. Some agents show their model no more of a tool's result
// either.
const maxTold = 100 << 10

// tellResult returns the part of the next prompt that tells a result, and the text of the result.
func tellResult(w *wait.Work, result json.RawMessage) (told, text string, failed bool) {
	text, failed = toolserver.ResultText(result)
	if len(text) > maxTold {
		text = strings.ToValidUTF8(text[:maxTold], "") + "\n[… left out …]"
	}
	what := "The result of"
	if failed {
		what = "It has failed:"
	}
	return fmt.Sprintf("%s %s %s, which you started before and which is done now:\n\n%s", what, w.Tool,
		jsonobj.Canonical(w.Arguments), text), text, failed
}
