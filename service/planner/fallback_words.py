"""The word lists and patterns with which the rule-based plan finds facets, intent and mode."""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _any_of(*patterns: str) -> re.Pattern[str]:
    """Compile an alternative of patterns, matched at word boundaries."""
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


COLORS = _words(
    "black white red blue green yellow pink purple orange brown gray grey silver gold golden beige navy teal tan ivory "
    "burgundy turquoise khaki olive cream maroon violet magenta lavender mint coral champagne charcoal clear "
    "multicolor camo floral plaid striped"
)
COLOR_MODIFIERS = _words("light dark bright pale hot rose navy sky royal neon matte pastel off army baby")
MATERIALS = _words(
    "leather cotton wool silk linen velvet satin denim canvas polyester nylon fleece suede wood wooden bamboo oak "
    "metal steel aluminum aluminium iron brass copper glass ceramic porcelain plastic silicone rubber vinyl foam paper "
    "cardboard marble granite stone acrylic titanium tungsten mesh lace flannel felt cashmere chenille rattan wicker"
)
MATERIAL_MODIFIERS = _words("stainless faux genuine real vegan solid tempered memory cast organic brushed carbon")
SIZES = _words("small medium large xs s m l xl xxl xxxl 2xl 3xl 4xl 5xl queen king twin oversized petite")
SIZE_UNITS = _words(
    "inch inches in ft feet foot cm mm m yard yards meter meters oz ounce ounces lb lbs pound pounds kg g gram grams "
    "ml l liter liters gallon gallons quart gb tb"
)
COUNT_UNITS = _words("pack packs count ct piece pieces pcs pc sets pairs")
AUDIENCES = _words(
    "men mens men's man women womens women's woman ladies kids kid kid's kids' children children's child boys boy "
    "boy's girls girl girl's toddler toddlers baby babies infant infants newborn newborns teen teens teenager adult "
    "adults youth unisex"
)
CONDITIONS = _words("used refurbished renewed vintage antique secondhand second-hand original")
OCCASIONS = _words(
    "christmas halloween easter thanksgiving wedding birthday anniversary graduation party valentine's valentines "
    "summer winter fall spring holiday travel camping hiking"
)
FEATURES = _words(
    "wireless bluetooth waterproof portable folding foldable rechargeable electric cordless outdoor indoor organic "
    "solar magnetic reusable disposable insulated inflatable adjustable washable ergonomic lightweight unscented "
    "noise-cancelling gluten-free sugar-free handmade digital automatic"
)
NEGATIONS = _words("not no non without except excluding minus")
LINKS = _words(
    "with for that which who from to of by as on at under over between in and or but when while because if so"
)
# Words before the product that say nothing about it.
FILLERS = _words("his her pair pairs set new good best great nice cheap really very ones also other kind type sort")
# Words that ask about a product and are not part of its name.
QUESTION_VERBS = _words("fit fits work works come comes use using used go goes last hold holds keep support supports")

_TO_GET = r"(?: to (?:buy|find|get|order|purchase))?"
LEAD_INS = _any_of(
    r"(?:look|search|shop|hunt)(?:ing|ping)?(?: around)? for",
    rf"(?:need|want|(?:would|'d) like){_TO_GET}",
    r"(?:show|find|get|give|buy|recommend|suggest)(?: me)?",
    r"do (?:you|u) (?:have|sell|carry)",
    r"(?:what|how) about",
    r"interested in",
    r"in the market for",
    r"after",
    r"any",
)
CONVERSATIONAL = re.compile(
    r"\?\s*$"
    r"|^(?:hi|hey|hello|who|what|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|will|would|should|"
    r"has|have|may|might|please|show|find|give|get|tell|help|recommend|suggest|let|looking|searching|buy)\b"
    r"|\b(?:i|i'm|im|i'd|id|i'll|i've|ive|we|we're|my|me|you|please|need|want|wanna|looking for)\b"
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
    r"got any",
    r"in stock",
    r"(?:looking|shopping) for",
    r"gift for",
)
FOLLOW_UP = re.compile(
    r"^(?:(?:and|or|but|ok|okay|no|hmm|actually|then),? )*(?:(?:what|how) about|in|with|without|under|over|below|above|"
    r"but|and|something|anything|any|do (?:you|they) have|show me|make it|only|cheaper|bigger|smaller|larger|instead|"
    r"for)\b"
)
REVIEW_QUESTION = _any_of(
    r"reviews?|comfortable|durable|quality|worth|sturdy|noisy|loud|smell|warm",
    r"hold up|last (?:long|a)|long does|(?:any )?good(?: for)?|easy to|work well",
    r"true to size|fits?|run (?:small|large|big)",
)
PRODUCT_REFERENCE = _any_of(r"this|these|it|they|its|the (?:product|item|box|battery|cord|lid|handle|size|color)")

_ORDER = r"(?:orders?|purchases?|packages?|parcels?|shipments?|deliver(?:y|ies))"
_CHANGE = r"(?:cancel(?:l?ing|ation)?|chang(?:e|ing)|modif(?:y|ying)|edit(?:ing)?|updat(?:e|ing)|correct(?:ing)?|swap)"
_PROFILE = (
    r"(?:accounts?|profiles?|passwords?|pass ?codes?|pin code|user ?names?|newsletters?|subscriptions?|sign[- ]?up|"
    r"log ?-?in|registration)"
)
_TROUBLE = r"(?:problem|issue|error|trouble)s?"

# Tried in order; the first match decides. All other questions are about products.
SUPPORT_INTENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "contact_agent",
        _any_of(
            r"(?:talk|speak|chat|connect|transfer|contact|call|reach)(?:ing)?\b.{0,30}\b(?:human|agent|assistant|person|"
            r"someone|somebody|operator|representative|rep|support)",
            r"(?:live|human|real) (?:agent|person|chat)",
            r"customer (?:service|support|care|assistance)",
        ),
    ),
    (
        "returns_refunds",
        _any_of(
            r"(?:refund(?:s|ed|ing)?|reimburse(?:d|ments?)|money back|compensations?|rebates?|restitution)"
            r"(?!.{0,20}\bstatus)",
            r"return (?:policy|label|an?|my|the|it|this|these|window|shipping)",
            r"returning|returns|rma",
            r"send (?:it|this|them) back",
            r"exchange (?:it|this|my|an?|policy)|exchanging",
        ),
    ),
    (
        "policy_help",
        _any_of(
            r"(?:termination|cancellation|exit|withdrawal) (?:fee|charge|penalt)\w*",
            r"payment (?:methods?|options?|modalit\w+)",
            r"(?:shipping|delivery|shipment) (?:options?|methods?|costs?|fees?|policy|rates?|charges?)",
            r"(?:privacy|store|price match|warranty|shipping|exchange) policy|policies|warranty",
            r"do you (?:ship|deliver)|free shipping|ship to",
            r"price match\w*|(?:store|prefill draft) hours|gift wrap\w*",
        ),
    ),
    ("order_change", _any_of(rf"{_CHANGE}\b.{{0,40}}\b(?:{_ORDER}|items?|(?:delivery|shipping|billing)? ?address)")),
    (
        "order_status",
        _any_of(
            rf"(?:track(?:ing)?|where(?:'s| is| are| r)? (?:is )?my|status of|locat\w+ my)\b.{{0,30}}\b(?:{_ORDER}|"
            r"refund|number|stuff|things?|items?)",
            rf"(?:{_ORDER}|refund) status",
            rf"(?:my|the) {_ORDER}\b.{{0,30}}\b(?:arriv\w+|come|coming|late|lost|shipped|delivered|missing)",
            rf"when (?:will|is|does)\b.{{0,30}}\b{_ORDER}",
            r"^track(?:ing)?",
            r"(?:order|purchase) (?:number )?#?\d{4,}",
        ),
    ),
    (
        "payment_billing",
        _any_of(
            r"invoices?|(?:my|the) bills?|billing|receipts?|charged|double charge",
            rf"payment (?:{_TROUBLE}|failed|declined)",
            rf"{_TROUBLE} (?:with|on|in) .{{0,20}}payments?",
            r"card (?:was |got |is )?declined|can'?t pay|pay (?:my|for my) (?:bill|order)",
        ),
    ),
    (
        "account",
        _any_of(
            r"(?:my|an?|the|new|your|ur|free|premium|platinum|gold|standard|freemium|pro|delete|create|open|close)\b.{0,20}"
            rf"\b{_PROFILE}",
            rf"(?:forgot|reset|recover|restore|retrieve|lost)\b.{{0,20}}\b{_PROFILE}",
            rf"{_PROFILE} (?:{_TROUBLE}|settings|help)",
            r"^(?:log ?in|sign ?in|sign ?up)",
            r"(?:un)?subscrib\w+",
            r"(?:set up|add|enter\w*|submit\w*)\b.{0,20}\b(?:delivery|shipping) address",
        ),
    ),
    (
        "feedback",
        _any_of(
            r"(?<!any )complaints?|complain(?:ing)?|claim|feedback",
            r"(?:leave|write|post|submit|send\w*|make) .{0,12}(?:review|comment|opinion|claim|reclamation)s?",
        ),
    ),
    (
        "out_of_scope",
        _any_of(
            r"weather|forecast|a joke|translate|meaning of life|credit score|exchange rate|stock price|flight status",
            r"alarm for|set (?:a|an|the) (?:timer|alarm|reminder)|remind me to|what time is it",
            r"play (?:some )?(?:music|a song|the song|songs|next)|(?:next|this|current) song",
            r"bank (?:account|balance)|book (?:a|me a) (?:flight|table|hotel|room)",
            r"flip a coin|roll (?:a|the) dice|how do (?:you|i) say",
            r"your name|who (?:made|created) you|are you (?:a )?(?:bot|human|robot|real)",
            r"ignore (?:all |the |your )?(?:previous|above|prior) instructions",
        ),
    ),
)
