package sdks

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/genai"

	"github.com/evalrun/evalrun/internal/agent/modelagent"
)

// geminiSends returns the body that the official client sends.
func geminiSends(t *testing.T, contents []*genai.Content, config *genai.GenerateContentConfig) (body map[string]any) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1beta/models/m1:generateContent" || json.NewDecoder(r.Body).Decode(&body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"candidates":[]}`) // what is missing fails below
	}))
	t.Cleanup(server.Close)
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{Backend: genai.BackendGeminiAPI, APIKey: "key", HTTPOptions: genai.HTTPOptions{BaseURL: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Models.GenerateContent(t.Context(), "m1", contents, config); err != nil || body == nil {
		t.Fatal(err)
	}
	return body
}

// A loop against Gemini: signatures of thoughts go back on their parts, and all results come in one
// content.
func TestLoopsOfGemini(t *testing.T) {
	const content = `{"role":"model","parts":[{"text":"I think.","thought":true},{"text":"I look.","thoughtSignature":"c2ln"},
		{"functionCall":{"id":"f1","name":"bash","args":{"command":"echo one"}},"thoughtSignature":"eA=="},{"functionCall":{"id":"f2","name":"bash","args":{"command":""}}}]}`
	ours := bodies(t, "gemini", &modelagent.Settings{Reasoning: json.RawMessage("2000"), MaxTokens: 99, Seed: new(int64)},
		`{"candidates":[{"content":`+content+`,"finishReason":"STOP"}]}`, `{"candidates":[{"content":{"role":"model","parts":[{"text":"end"}]},"finishReason":"STOP"}]}`)
	declared := ours[0]["tools"].([]any)[0].(map[string]any)["functionDeclarations"].([]any)[0]
	description, schema := bashOf(t, declared, "parametersJsonSchema")
	budget, seed := int32(2000), int32(0)
	config := &genai.GenerateContentConfig{SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: system}}}, MaxOutputTokens: 99, Seed: &seed,
		ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: &budget},
		Tools:          []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "bash", Description: description, ParametersJsonSchema: schema}}}}}
	contents := []*genai.Content{genai.NewContentFromText("Work.", genai.RoleUser)}
	equal(t, ours[0], geminiSends(t, contents, config))
	answer := decode[genai.Content](t, content)
	result := func(id string, said map[string]any) *genai.Part {
		return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "bash", Response: said}}
	}
	contents = append(contents, &answer, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
		result("f1", map[string]any{"output": "one"}), result("f2", map[string]any{"error": wrongCall})}})
	equal(t, ours[1], geminiSends(t, contents, config))
}
