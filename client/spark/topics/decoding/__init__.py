"""Pure: from the bytes of a Fetch answer to the columns of an Arrow batch, with numpy and pyarrow and without an object
per record. May import kraft.wire and kraft.seam; `kraft.client.spark.topics.arrow_records` is its door."""
