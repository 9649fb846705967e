"""An encoder answers requests of varying size on four streams; the main stream collects the answers."""
import random

import torch
from transformers import BertConfig, BertModel

STREAMS = 4
REQUESTS = 8  # per step
VOCABULARY = 30522


class Serving:
    WARM = 10

    def __init__(self):
        self.model = BertModel(BertConfig(), add_pooling_layer=False)
        self.model = self.model.to(device="cuda", dtype=torch.bfloat16).eval()
        self.streams = [torch.cuda.Stream() for _ in range(STREAMS)]
        self.rng = random.Random(17)

    def answer_request(self, number):
        """The request's input belongs to the main stream, its answer to a side stream."""
        stream = self.streams[number % STREAMS]
        main = torch.cuda.current_stream()
        ids = torch.randint(0, VOCABULARY, (self.rng.randint(8, 128), self.rng.randint(32, 512)),
                            device="cuda")
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            answer = self.model(input_ids=ids).last_hidden_state.float()
        ids.record_stream(stream)
        return stream, answer

    @torch.no_grad()
    def step(self, number):
        main = torch.cuda.current_stream()
        answers = [self.answer_request(each) for each in range(REQUESTS)]
        sums = []
        for stream, answer in answers:
            main.wait_stream(stream)
            answer.record_stream(main)
            sums.append(answer.double().mean())
        return torch.stack(sums)
