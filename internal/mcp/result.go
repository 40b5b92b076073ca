package mcp

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// TextResult is a result of a tool that is one text.
func TextResult(text string, isError bool) json.RawMessage {
	content := jsonobj.Object{
		{Key: "type", Value: json.RawMessage(`"text"`)}, {Key: "text", Value: jsonobj.Quote(text)},
	}.JSON()
	o := jsonobj.Object{{Key: "content", Value: append(append(json.RawMessage{'['}, content...), ']')}}
	if isError {
		o = o.Set("isError", json.RawMessage("true"))
	}
	return o.JSON()
}
