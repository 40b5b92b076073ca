package model

import (
	"encoding/json"
	"testing"

	"github.com/evalrun/evalrun/eval"
)

// Input tokens are all of them, also where a provider leaves out those of its cache.
func TestUsageOfAllAPIs(t *testing.T) {
	for api, answer := range map[API]string{
		APIChat:      `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":120,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":100}}}`,
		APIResponses: `{"status":"completed","output":[],"usage":{"input_tokens":120,"output_tokens":30,"input_tokens_details":{"cached_tokens":100}}}`,
		APIMessages:  `{"content":[],"usage":{"input_tokens":15,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":30}}`,
		APIGemini:    `{"candidates":[{"content":{}}],"usageMetadata":{"promptTokenCount":120,"cachedContentTokenCount":100,"candidatesTokenCount":10,"thoughtsTokenCount":20}}`,
	} {
		got, err := api.Read(json.RawMessage(answer))
		if want := (eval.Usage{InputTokens: 120, CachedInputTokens: 100, OutputTokens: 30}); err != nil || got.Usage == nil || *got.Usage != want {
			t.Errorf("%s: %+v, %v", api, got.Usage, err)
		}
	}
}
