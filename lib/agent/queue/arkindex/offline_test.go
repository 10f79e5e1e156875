package arkindex

import "testing"

func TestSecretValue(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"plain", "yes: no", `"yes: no"`},
		{"a.json", `{"a": [1e5]}`, `{"a": [1e5]}`},
		{"a.JSON", `{half`, `"{half"`},
		{"a.yml", "a: [1, yes, null, 'no', Off]\nb: {c: d}", `{"a":[1,true,null,"no",false],"b":{"c":"d"}}`},
		{"a.yaml", "a: [", `"a: ["`},
		{"a.txt", "", `""`},
	} {
		if got, err := secretValue(tt.name, tt.content); err != nil || string(got) != tt.want {
			t.Errorf("secret %s %q is %s, %v; want %s", tt.name, tt.content, got, err, tt.want)
		}
	}
}
