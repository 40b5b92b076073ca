package jsonobj

import (
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

var unescaped = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false))

// Marshal is json.Marshal but for <, > and &, which stay as they are: what is stored and shown is
// read by people. A page escapes what it shows itself.
func Marshal(v any) ([]byte, error) { return jsonv2.Marshal(v, unescaped) }
