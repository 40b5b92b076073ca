package fakemodel

import (
	"encoding/json"
	"strings"
)

func readGemini(body []byte, r *Request) error {
	type parts struct {
		Role  string `json:"role"`
		Parts []struct {
			Text string `json:"text"`
			Call *struct {
				ID   string          `json:"id"`
				Name string          `json:"name"`
				Args json.RawMessage `json:"args"`
			} `json:"functionCall"`
			Response *struct {
				ID       string          `json:"id"`
				Response json.RawMessage `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	}
	var in struct {
		System   *parts  `json:"systemInstruction"`
		Contents []parts `json:"contents"`
		Tools    []struct {
			Functions []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	if in.System != nil {
		in.System.Role = "system"
		in.Contents = append([]parts{*in.System}, in.Contents...)
	}
	for _, m := range in.Contents {
		out := Message{Role: m.Role}
		switch m.Role {
		case "model":
			out.Role = "assistant"
		case "":
			out.Role = "user"
		}
		var texts []string
		for _, p := range m.Parts {
			switch {
			case p.Call != nil:
				out.Calls = append(out.Calls, Call{p.Call.ID, p.Call.Name, p.Call.Args})
			case p.Response != nil:
				out.Results = append(out.Results, Result{p.Response.ID, string(p.Response.Response)})
			case p.Text != "":
				texts = append(texts, p.Text)
			}
		}
		out.Text = strings.Join(texts, "\n")
		r.Messages = append(r.Messages, out)
	}
	for _, t := range in.Tools {
		for _, f := range t.Functions {
			r.Tools = append(r.Tools, f.Name)
		}
	}
	return nil
}

func writeGemini(r *reply) {
	response := func(last bool, part object) object {
		candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}}
		out := object{"candidates": []any{candidate}, "modelVersion": r.req.Model, "responseId": r.name("r")}
		if last {
			candidate["finishReason"] = "STOP"
			out["usageMetadata"] = object{"promptTokenCount": InputTokens,
				"candidatesTokenCount": OutputTokens, "totalTokenCount": InputTokens + OutputTokens}
		}
		return out
	}
	var pieces []object
	switch c := r.answer.call; {
	case c != nil:
		pieces = []object{response(true, object{"functionCall": object{"id": r.name("fc"), "name": c.Name, "args": c.Args}})}
	case !r.req.Stream:
		pieces = []object{response(true, object{"text": r.answer.text})}
	default:
		for i, half := range r.halves() {
			pieces = append(pieces, response(i == 1, object{"text": half}))
		}
	}
	switch {
	case !r.req.Stream:
		writeJSON(r.w, pieces[0])
	case r.array:
		for i, piece := range pieces {
			raw, _ := json.Marshal(piece) // of maps and strings
			r.send("application/json", map[bool]string{true: "[", false: ",\n"}[i == 0]+string(raw))
		}
		r.send("application/json", "]")
	default:
		for _, piece := range pieces {
			r.event("", piece)
		}
	}
}
