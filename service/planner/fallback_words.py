"""The word lists and patterns with which the rule-based plan finds facets, intent and mode."""

import re

from service.planner.phrases_words import word_set


def _any_of(*patterns: str) -> re.Pattern[str]:
    """Compile an alternative of patterns, matched at word boundaries."""
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


COLORS = word_set("word.colors")
COLOR_MODIFIERS = word_set("word.color.modifiers")
MATERIALS = word_set("word.materials")
MATERIAL_MODIFIERS = word_set("word.material.modifiers")
SIZES = word_set("word.sizes")
SIZE_UNITS = word_set("word.size.units")
COUNT_UNITS = word_set("word.count.units")
AUDIENCES = word_set("word.audiences")
CONDITIONS = word_set("word.conditions")
OCCASIONS = word_set("word.occasions")
FEATURES = word_set("word.features")
NEGATIONS = word_set("word.negations")
LINKS = word_set("word.links")
ARTICLES = word_set("word.articles")
JOINS = word_set("word.joins")
COMPARING = word_set("word.comparing")
GOVERNORS = word_set("word.governors")
SETS = word_set("word.sets")
# Words before the product that say nothing about it.
FILLERS = word_set("word.fillers")
# Words that ask about a product and are not part of its name.
QUESTION_VERBS = word_set("word.question.verbs")

_TO_GET = r"(?: to (?:buy|find|get|order|purchase))?"
LEAD_INS = _any_of(
    r"(?:look|search|shop|hunt)(?:ing|ping)?(?: around)? for",
    rf"(?:need|want|(?:would|'d) like){_TO_GET}",
    r"(?:show|find|get|give|buy|recommend|suggest)(?: me)?",
    r"do (?:you|u) (?:have|sell|carry)",
    r"(?:what|how) about",
    r"interested in|selection of|^add",
    r"in the market for",
    r"after",
    r"any",
)
CONVERSATIONAL = re.compile(
    r"\?\s*$"
    r"|^(?:who|what|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|will|would|should|"
    r"has|have|may|might|please|show|find|give|get|tell|help|recommend|suggest|let|looking|searching|buy)\b"
    r"|\b(?:i|i'm|im|i'd|id|i'll|i've|ive|we|we're|my|me|(?<!thank )you|please|need|want|wanna|looking for)\b"
)
QUESTION_START = re.compile(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|but|well),? )*(?:is|are|was|were|does|do|did|can|could|will|would|has|have|"
    r"how|what|what's|whats|which|who|where|when|why|should)\b"
)
# A wish for products, though phrased as a question.
WISH = _any_of(
    r"do (?:you|they|u) (?:have|sell|carry|stock)",
    r"(?:can|could|will|would) (?:you|u) (?:please )?(?:find|show|get|give|help|recommend|suggest)",
    r"(?:can|could) i (?:get|find|buy|see|order)",
    r"where can",
    r"i (?:need|want)",
    r"i'm looking",
    r"what(?:'s| is| are) (?:some|a) good",
    r"best (?!reviews)",
    r"(?:recommend|suggest)(?:ations?|ions?)?",
    r"got any|selection of|around here",
    r"in stock",
    r"(?:looking|shopping) for",
    r"gift for",
)
FOLLOW_UP = re.compile(
    r"^(?:(?:and|or|but|ok|okay|no|hmm|actually|then|sorry|well|yes|maybe|perhaps|just),? )*(?:(?:what|how) about|"
    r"in|with|without|"
    r"under|over|below|above|but|and|or|something|anything|any|do (?:you|they) have (?:it|this|that|them|one|any)|"
    r"have it|"
    r"show me (?:the|ones|some)|make (?:it|that)|only|cheaper|bigger|smaller|larger|instead|for|same|the same|size|"
    r"from|by|"
    r"switch|change|i(?:'d| would) (?:prefer|rather)|i prefer|is there (?:one|a|something)|could it|it should|"
    r"it's for|it is for|"
    r"i meant|must be|preferably|not|no|don't|i don't|except|these|those|which|are (?:there|any|they)|can (?:it|you|"
    r"i))\b"
    r"|\b(?:instead|rather than|only|ones?|please|version)\s*[.!?]?$"
)
REVIEW_QUESTION = _any_of(
    r"reviews?|comfortable|durable|quality|worth|sturdy|noisy|loud|smell|warm",
    r"hold up|last (?:long|a)|long does|(?:any )?good(?: for)?|easy to|work well",
    r"true to size|fits?|run (?:small|large|big)",
)
PRODUCT_REFERENCE = _any_of(r"this|these|it|they|its|the (?:product|item|box|battery|cord|lid|handle|size|color)")

SLOGAN = re.compile(r"\b(?:that says|saying|with the (?:words|text)|titled|called)\b")
GREETING = re.compile(
    r"^(?:(?:hi|hey|hello|um|ok|okay|so|well|there|excuse me|good (?:morning|afternoon|evening))[,!.]* )+"
)
# Questions about one product, in whatever form.
ASKING = _any_of(
    r"dimensions|(?:max|maximum|weight) (?:weight|capacity|limit)|(?:any )?(?:complaints|reviews|opinions) (?:about|"
    r"on|of)",
    r"battery life|(?:pros and cons|drawbacks) of (?!.*\b(?:and (?:a|the)|or|vs|compared)\b)|compatible with|"
    r"run(?:s)? (?:small|large|big|true)",
    r"(?:i'm|i am|im) between (?:a |an )?\d[\d.]* and|will .{2,60} (?:fit|work)|does .{2,60} (?:come with|have|fit|"
    r"work|need|run|last|take|support|include)",
)
SUPPORT_WORDS = re.compile(r"\b(?:order|return|refund|exchange|account|agent)\b")
COMPARISON = _any_of(
    r"comparing|would you (?:buy|get|pick|choose|recommend) .{2,60} or|(?:is|are) .{2,60} different (?:from|than|to)",
    r"(?:last|lasts|works?) (?:longer|better) than",
    r"vs|versus|compared? (?!and contrast)|comparison|side by side|pros and cons|differen(?:ce|t)s?.{0,20}between",
    r"difference to|decide between|choose between|choosing between|torn between|better.{0,60} or|"
    r"better than (?:that|the|a)",
    r"(?:which|what)(?:'s| is| one| should| would| makes).{0,60} or|.{3,60} or .{2,60}[,?] ?which.*",
    r"(?:is|are) .{3,60} (?:or|and) .{2,40} (?:better|easier|safer|cheaper|healthier)|(?:should|do) (?:i|"
    r"we) .{3,50} or",
    r"or is .{2,40} better|how (?:does|do) .{2,60} (?:compare|stack up)|instead of buying",
)
COMPARED = _any_of(r"vs|versus|side by side|compared?|comparison|difference between")  # beyond doubt
# After "vs" these say that a title is meant: "kramer vs kramer dvd".
TITLES = _any_of(
    r"dvds?|blu[- ]?ray|uhd|movies?|film|books?|workbook|paperback|hardcover|comics?|posters?|plush\w*|toys?|"
    r"shirts?|tee|"
    r"cd|vinyl|costumes?|lego|puzzle|(?:board|card|video) game|game|funko|figures?|soundtrack|xbox one game|season",
)
ADVICE = _any_of(
    r"how long (?:do|does|should) (?:a |an |the )?(?:\w+ ){1,4}(?:usually |typically |normally )?last|what (?:goes|"
    r"pairs) (?:well )?with",
    r"what (?:should|do|does|would|can) (?:i|we|you|a|an|someone|beginners?|people)\b.{0,40}\b(?:look|consider|need|"
    r"know|"
    r"start|bring|pack|use|buy|get|wear|take|watch|check)",
    r"(?:how|what) (?:to|do (?:i|you|we)|should (?:i|we|a|an|the)|can i)\b.{0,30}\b(?:choose|pick|select|decide|"
    r"look for|"
    r"tell|prepare|set up|know|find the right|get into|start|fit|size|throw|introduce)",
    r"how (?:many|much|big|long|large|heavy|tall|thick|high|often|powerful|strong|wide|deep) (?:\w+ ){0,3}(?:do|"
    r"should|is right|for|can|"
    r"must)(?! (?:the|my|your|it|this)\b)",
    r"(?:what|which) (?:size|kind|type|sort|length|brand|height|weight|wattage|capacity)s? (?:of )?(?:\w+ ){1,3}"
    r"(?:do|should|is|are|for|would|works?)",
    r"which (?:\w+ ){1,3}(?:is|are|for|should|do|does|stays?|lasts?|keeps?|helps?|works?|suits?|would)",
    r"tips|advi[cs]e|buying guide|guide to|worth (?:it|the|buying|having|paying)|(?:what's|what is|whats|"
    r"what are).{0,12}"
    r"\b(?:trend\w*|popular|in style|in fashion|needed|important|essential|the best way|the right|a good)",
    r"what makes|what goes|what matters|that matter|explain|new to|getting into|get started|where do i (?:start|begin)",
    r"(?:are|is) (?:\w+ ){1,4}(?:necessary|good for|bad for|better for|enough for|safe for|overrated|worth)",
    r"(?:gear|equipment|supplies|tools|things|stuff|essentials).{0,20}\b(?:need|important|required|matter|"
    r"essential)\w*",
    r"do i (?:really )?need|should i (?:get|buy|replace|use|choose|go)|right (?:size|time|kind)|good time to|"
    r"how (?:is|are) .{2,40} different",
)
OUT_OF_SCOPE = _any_of(
    r"weather|forecast|will it (?:rain|snow)|going to (?:rain|snow)|joke|translate|meaning of life|horoscope|"
    r"credit score",
    r"exchange rate|stock market|flight status|capital of|population of|president|prime minister|election",
    r"who (?:won|is|was|wrote|invented|discovered|sang|directed) |when (?:did|was) .{3,}|what year|how (?:far|old|"
    r"tall) is",
    r"(?:write|compose|draft) (?:me )?(?:a|an|my|the|some)|(?:python|javascript|sql|regex|html|excel formula)\b.*|"
    r"solve|"
    r"square root|what is \d+|\d+ (?:times|plus|minus|divided)|define|meaning of|synonym|homework|essay|poem",
    r"alarm (?:for|at)|(?:set|start) (?:a|an|the) (?:timer|reminder)|remind me|what time is it|what day is|"
    r"what's the date",
    r"play (?:some |me )?(?:music|jazz|a song|the song|songs|next|rock|my)|sing|(?:next|this|current) song|"
    r"turn (?:on|off) the",
    r"bank (?:account|balance)|(?:book|reserve|find) (?:us |me )?(?:a |an )?(?:flight|table|hotel|room|taxi|uber|"
    r"restaurant|ticket)s?",
    r"call me a|order (?:me )?(?:a |some )?(?:pizza|taxi|uber)|flip a coin|roll (?:a|the) di[ce]e?|how do (?:you|"
    r"i) say",
    r"your name|who (?:made|created) you|are you (?:a |an )?(?:bot|human|robot|real|ai)|you are now|no rules",
    r"(?:ignore|disregard|forget|repeat|reveal|print|show).{0,25}(?:instructions?|system prompt|your prompt|"
    r"text above|rules)",
    r"(?:landlord|lawsuit|sue|lawyer|visa|taxes|mortgage|loan|divorce|boyfriend|girlfriend|diagnos\w+|symptoms?)",
    r"(?:pipe bomb|make a bomb|explosives?|hack (?:into|my)|steal|counterfeit|meth|poison someone)",
    r"how (?:do|does|can|to) (?:i |you )?(?:cook|bake|fly|lose weight|vote|get (?:rich|a job|a visa))|recipe for|"
    r"nearest|news",
)
# A whole utterance of these is talk.
TALK = word_set("word.talk")
FOREIGN = word_set("word.foreign")
# What takes back a facet.
_ANY = (
    r"(?:any|all|other|whatever|no matter (?:the|which)|don't care about the|don't care what|forget (?:about )?the|"
    r"every|which)"
)
_MATTERS = r"(?:doesn't|does not|isn't|is not|don't|can|could|needn't)\b.{0,12}\b(?:matter|important|be anything)"
LIFTS = {
    facet: re.compile(rf"\b{_ANY} (?:{name})\b|\b(?:{name})s? {_MATTERS}")
    for facet, name in (
        ("color", "colou?rs?"),
        ("brand", "brands?|makes?"),
        ("size", "sizes?"),
        ("material", "materials?|it's made of"),
    )
}
ADDED = re.compile(r"^(?:and (?!for|in|size)|also|plus)\b|\b(?:as well|too)\s*$")

_ORDER = r"(?:orders?|purchases?|packages?|parcels?|shipments?|deliver(?:y|ies))"
_CHANGE = r"(?:cancel(?:l?ing|ation)?|chang(?:e|ing)|modif(?:y|ying)|edit(?:ing)?|updat(?:e|ing)|correct(?:ing)?|swap)"
_PROFILE = (
    r"(?:accounts?|profiles?|passwords?|pass ?codes?|pin code|user ?names?|newsletters?|subscriptions?|sign[- ]?up|"
    r"log ?-?in|registration)"
)
_TROUBLE = r"(?:problem|issue|error|trouble)s?"

# Support, whatever kind of thing stands at the end of the question.
STRONG_SUPPORT = _any_of(
    r"(?:my|the|this|an|that|your) (?:order|package|parcel|refund|account|password|delivery|shipment|purchase|"
    r"payment|invoice)",
    r"(?:return|refund|exchange|send .{0,12}back|cancel|charged|customer service|i (?:bought|ordered|returned))",
    r"(?:shipping|return|privacy|delivery|refund|exchange|cancellation|payment|warranty) (?:policy|options?|"
    r"methods?|costs?|fees?)",
    r"order (?:status|number|#?\d)|track(?:ing)? (?:number|order|my|package|parcel)|gift card balance|log ?in|sign in",
)
# Tried in order; the first match decides. All other questions are about products.
SUPPORT_INTENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "contact_agent",
        _any_of(
            r"(?:talk|speak|chat|connect|transfer|contact|call|reach)(?:ing)?\b.{0,30}\b(?:human|agent|assistant|"
            r"person|"
            r"someone|somebody|operator|representative|rep|support)",
            r"(?:live|human|real) (?:agent|person|being|chat)|chatbot|your (?:phone number|email address)|call center",
            r"customer (?:service|support|care|assistance)",
        ),
    ),
    (
        "feedback",
        _any_of(
            r"(?<!any )complaints?|complain(?:ing)?|feedback|unacceptable|disappointed|disappointing|(?:terrible|"
            r"awful|great|"
            r"horrible|worst|excellent|best) (?:service|experience|shop|store|website)|rude|never (?:shop|buy|"
            r"order)ing",
            r"(?:leave|write|post|submit|send\w*|make) .{0,12}(?:review|comment|opinion|claim|reclamation|"
            r"suggestion)s?",
            r"too much (?:plastic|packaging)|(?:third|second|fourth) time .{0,40}(?:dirty|box|sent)|(?:third|second|"
            r"fourth) time .{0,40}(?:driver|order|parcel|package|late|wrong)|suggestion for your",
        ),
    ),
    (
        "returns_refunds",
        _any_of(
            r"(?:refund(?:s|ed|ing)?|reimburse(?:d|ments?)|money back|compensations?|rebates?|restitution)"
            r"(?!.{0,20}\bstatus)",
            r"(?:how|can|could|want to|like to|need to|to|do) (?:do |can )?(?:i |we )?return|return (?:policy|label|"
            r"window|shipping|it|this|my)",
            r"returning|^(?:returns?|exchange)\\W*(?:pls|please)?$|(?:cancel|give) (?:a |back )(?:return|a )|"
            r"died after|stopped working|rma|return (?:an?|the) (?:item|order|gift|product|purchase|package)",
            r"(?:send|sent|give|bring|take|ship) .{0,25}\bback\b|(?:came|arrived|was|is|were) .{0,20}(?:broken|"
            r"damaged|cracked|"
            r"defective|shattered|torn)|(?:wrong|different) (?:item|size|color|one|product) (?:came|arrived|sent|was)",
            r"(?:sent|got|received|delivered) (?:me )?(?:the|a|an) (?:wrong|medium|small|large|different|broken|"
            r"damaged)",
            r"exchange (?:it|this|my|an?|the|for|policy)|exchanging|swap (?:it|this|them|my)|replacement (?:for my|if)",
        ),
    ),
    (
        "policy_help",
        _any_of(
            r"(?:termination|cancellation|exit|withdrawal|restocking) (?:fee|charge|penalt)\w*",
            r"payment (?:methods?|options?|modalit\w+)|(?:pay|paying) (?:with|by|using|in)|do you (?:accept|"
            r"take) (?:paypal|apple|"
            r"visa|amex|cash|checks?|afterpay|klarna|credit)|installments?|afterpay|klarna",
            r"(?:shipping|delivery|shipment) (?:options?|methods?|costs?|fees?|policy|rates?|charges?|times?|take)",
            r"(?:privacy|store|price match|warranty|shipping|exchange) policy|policies|(?:your|the) warranty|"
            r"warranty (?:policy|claim)",
            r"signature|recycle|international (?:delivery|shipping|orders)|do you (?:ship|deliver)|ship to|"
            r"deliver to|how (?:long|much) (?:is|does|do|are) .{0,15}(?:shipping|delivery|i have to)",
            r"price match\w*|(?:store|opening) hours|gift wrap\w*|student discount|loyalty|rewards? (?:points|program)",
        ),
    ),
    (
        "order_change",
        _any_of(
            rf"{_CHANGE}\b.{{0,40}}\b(?:{_ORDER}|items?|(?:delivery|shipping|billing)? ?address)",
            rf"{_ORDER}\b.{{0,20}}\b(?:wrong|mistake)|pressed buy|ordered twice|(?:pause|skip|cancel) (?:my |"
            rf"the )?(?:\\w+ )?subscription|"
            rf"pause my|(?:wrong|mistake|forgot|add|remove|another).{{0,40}}\b{_ORDER}|before it ships|cancel it|"
            rf"hold my",
        ),
    ),
    (
        "order_status",
        _any_of(
            rf"(?:track(?:ing)?|where(?:'s| is| are| r)? (?:is )?my|status of|locat\w+ my)\b.{{0,30}}\b(?:{_ORDER}|"
            r"refund|number|stuff|things?|items?)",
            rf"(?:{_ORDER}|refund) status",
            rf"(?:my|the) {_ORDER}\b.{{0,30}}\b(?:arriv\w+|come|coming|late|lost|shipped|delivered|missing)",
            rf"when (?:will|is|does)\b.{{0,30}}\b{_ORDER}",
            rf"{_ORDER} history|status of my|half of my {_ORDER}|^track(?:ing)?|says delivered|never (?:got|came|"
            rf"arrived|received)|(?:hasn't|has not|not) (?:arrived|come|shipped)",
            rf"where(?:'s| is| are)? (?:the |my )?(?:{_ORDER}|stuff)|when (?:will|do) (?:it|i|they) (?:arrive|"
            rf"get (?:it|my)|come)",
            r"(?:order|purchase) (?:number )?#?\d{4,}",
        ),
    ),
    (
        "payment_billing",
        _any_of(
            r"invoices?|(?:my|the) bills?|billing|receipts?|charged|double charge",
            rf"payment (?:{_TROUBLE}|failed|declined)",
            rf"{_TROUBLE} (?:with|on|in) .{{0,20}}payments?",
            r"(?:klarna|paypal|payment|card).{0,20}(?:problem|nothing happens|error|issue)|pay the rest|"
            r"store credit|entered my card|"
            r"card (?:was |got |is |keeps being )?(?:declined|rejected)|can'?t pay|pay (?:my|for my) (?:bill|order)|"
            r"(?:promo|coupon|discount|"
            r"voucher) codes?|at checkout|gift card balance|(?:charged|billed|paid) (?:me )?(?:twice|double|wrong|"
            r"too much)",
        ),
    ),
    (
        "account",
        _any_of(
            r"(?:my|an?|the|new|your|ur|free|premium|platinum|gold|standard|freemium|pro|delete|create|open|"
            r"close)\b.{0,20}"
            rf"\b{_PROFILE}",
            rf"(?:forgot|reset|recover|restore|retrieve|lost)\b.{{0,20}}\b{_PROFILE}",
            rf"{_PROFILE} (?:{_TROUBLE}|settings|help)",
            r"^(?:log ?in|sign ?in|sign ?up)",
            r"user ?names?|emails from you|my account|(?:un)?subscrib\w+|(?:marketing|promotional|promo|your|"
            r"spam) e?-?mails|stop (?:sending|emailing|texting)",
            r"(?:set up|add|enter\w*|submit\w*)\b.{0,20}\b(?:delivery|shipping) address",
        ),
    ),
)
