"""Writes a word-level tokenizer to a folder: 4,096 words, one word is one token, nothing downloaded."""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SIZE = 4096


def main(folder: str) -> None:
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab.update({f"w{i:04d}": i + 3 for i in range(SIZE - 3)})
    words = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)
    ids = fast.encode("w0000 w0001 w0002", add_special_tokens=False)
    assert fast.encode(fast.decode(ids), add_special_tokens=False) == ids


if __name__ == "__main__":
    main(sys.argv[1])
