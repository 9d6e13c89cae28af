"""A LangChain retriever over a Peakplan service and a search engine of yours.

    retriever = PeakplanRetriever(
        client=Client("http://127.0.0.1:8080"), mapping=CatalogueMapping.load("mapping.yaml"), engine="opensearch",
        search=lambda body: [hit["_source"] for hit in opensearch.search(index="products", body=body)["hits"]["hits"]],
    )
    retriever.invoke("waterproof hiking boots under $120, not leather")

Needs langchain-core. When no plan can be had, the shopper's own words are searched.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peakplan_client import CatalogueMapping, Client, Plan, PlannerError, translate

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise ImportError("This example needs LangChain: pip install langchain-core") from error


class PeakplanRetriever(BaseRetriever):
    """Plans a question, searches with each request of its translation, and returns the products as documents."""

    client: Client
    mapping: CatalogueMapping
    engine: Any
    search: Callable[[Any], Sequence[Mapping[str, Any]]]  # sends one request, returns products

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
    ) -> list[Document]:
        try:
            plan = self.client.plan(query).plan
        except PlannerError:
            plan = Plan(queries=[query])
        found: list[Mapping[str, Any]] = []
        for request in translate(plan, self.mapping, self.engine, query).requests:
            found += [product for product in self.search(request) if product not in found]
        return [self._document(product) for product in found]

    def _document(self, product: Mapping[str, Any]) -> Document:
        text = "\n".join(str(product[field]) for field in self.mapping.text if field in product)
        return Document(page_content=text or json.dumps(dict(product)), metadata=dict(product))
