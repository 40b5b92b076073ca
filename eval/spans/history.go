package spans

import (
	"encoding/json"
	"strings"

	"github.com/evalrun/evalrun/eval/pyvalue"
)

// History is the text that tells UiPath's judges what an agent did: its tool calls in their order.
// UiPath prints local time; here it is UTC, so that a prompt does not depend on the machine.
func History(segments [][]json.RawMessage) string {
	var lines []string
	for _, call := range ToolCalls(segments) {
		result, arguments := "{}", "{}" // as UiPath prints missing values
		if call.output != nil {
			result = strings.TrimSpace(pyvalue.Str(call.output))
		}
		if call.input != nil {
			arguments = pyvalue.Str(call.input)
		}
		lines = append(lines, "["+call.started+"] LLM Response:", "  Agent Selected 1 Tool(s):", "",
			"  Tool: "+call.Name,
			"  Arguments: "+arguments, "", "["+call.ended+"] Tool Call Response - "+call.Name+":", result, "")
	}
	return strings.Join(lines, "\n")
}
