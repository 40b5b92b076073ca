package wait

import (
	"encoding/json"
	"fmt"
)

// WithoutEffect is the member of a payload that says that nothing follows from an approval: what is
// approved cannot be told from other calls. "note" says why.
const WithoutEffect = "withoutEffect"

// ApprovalNote says what is wrong with approving what a payload asks; empty if nothing is.
func ApprovalNote(payload json.RawMessage) string {
	var asked struct {
		WithoutEffect bool   `json:"withoutEffect"`
		Note          string `json:"note"`
	}
	if json.Unmarshal(payload, &asked) != nil || !asked.WithoutEffect {
		return "" // it may be anything
	}
	return fmt.Sprintf("an approval lets nothing through, because %s; it will ask again", asked.Note)
}
