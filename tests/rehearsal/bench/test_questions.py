from rehearsal.bench.questions import own_questions


def test_own_questions_are_plannable_and_cover_history() -> None:
    questions = own_questions()

    assert len(questions) >= 40
    assert all(question.words for question in questions)
    assert any(len(question.utterances) > 1 for question in questions)
    assert len(own_questions(200)) == 200
